# make start: set up, open JupyterLab at chapter 00.   make progress: the board of one who learns.
# make course: set up, run the notebooks, build the pages.   make test: set up, run the tests.
# make exercises: the solved notebooks.   make test-notebooks: run every notebook again, compare with what is stored.
# make notebooks: as make course, and the stored notebooks are replaced by this run.
# PYTHON=python3.12 chooses the interpreter, VENV=dir the environment, TORCH="torch==2.12.0" the torch to install.
VENV   ?= .venv
TORCH  ?= torch==2.13.0
LAB    ?= jupyter lab
BIN     = $(VENV)/bin
READY   = $(VENV)/.ready

.PHONY: start progress nightly slides student-release docs quick style types faults soak soundness mutants course notebooks check-site exercises test-notebooks test test-gpu sanitize-gpu test-without-compiler test-pythons bench ops fuzz transparency vision storms fuzz-graphs fuzz-symbolic fuzz-shapes sanitize sizes test-explorer clean setup

start: $(READY)	# JupyterLab at chapter 00; LAB="jupyter lab --no-browser" prints the address
	@$(BIN)/$(LAB) notebooks/00_tour.ipynb

progress: $(READY)	# each exercise, as last checked, and each piece of notebooks/my_compiler: state, points
	@cd notebooks && $(abspath $(BIN))/python -W ignore -m exercises.board

course: $(READY)
	@$(BIN)/python notebooks/build.py

notebooks: $(READY)
	@$(BIN)/python notebooks/build.py --write

exercises: $(READY)
	@$(BIN)/python notebooks/build.py --exercises
	@$(BIN)/python -m pytest tests/capstone_answers.py	# the capstone's wrong answers fail

test-notebooks: $(READY)
	@$(BIN)/python notebooks/build.py --check

slides: $(READY)	# a deck for each chapter, made of the stored notebooks: build/slides
	@$(BIN)/python notebooks/teaching/slides.py

student-release: $(READY)	# the students' tree, without solutions: build/student
	@$(BIN)/python notebooks/teaching/release.py

check-site: $(READY)	# the built pages in headless Chromium (needs playwright and chromium; axe-core-python if it is there)
	@$(BIN)/python notebooks/check_site.py --browser

test: $(READY)
	@echo "[test] running the tests, a process for each core"
	@$(BIN)/python -m pytest -n auto --dist loadfile tests

# origins of every object over 200 random programs and 10 models, and the page in headless Chromium
# (a `chromium` on PATH; PICTURES=folder keeps screenshots)
test-explorer: $(READY)
	@$(BIN)/python -m pip install -q -e ".[explorer]"
	@MINI_PICTURES=$(PICTURES) TRITON_INTERPRET=1 $(BIN)/python -m pytest tests/explorer/*.py

# for every commit, in two minutes: layout, names, types, and a few tests of each file
quick: $(READY) style
	@$(BIN)/python -m pytest --quick 2 tests

# layout, names, types
style: $(READY) types
	@$(BIN)/python tools/sizes.py --check
	@$(BIN)/ruff format --check --quiet .
	@$(BIN)/ruff check --quiet .

types: $(READY)		# of the modules that pyproject.toml lists as done
	@$(BIN)/mypy --no-error-summary

# on a machine with an NVIDIA GPU: kernels as machine code instead of in Triton's interpreter
test-gpu: $(READY)
	@TRITON_INTERPRET=0 $(BIN)/python -m pytest -m gpu tests/test_gpu.py

# the generated kernels of a sample of these tests under memcheck (compute-sanitizer comes with the
# CUDA toolkit); the driver's own errors are no concern: so it refuses a tile that is too large
SAMPLE = softmax or layer_norm or statistics or transposed or test_sum or arg_reductions or scatter or indirect or random_numbers or shapes or strides or template or optimizers or written_in_place or attention_of_slices or a_number_from or (scans and not shape3 and not shape4)
sanitize-gpu: $(READY)
	@TRITON_INTERPRET=0 PYTORCH_NO_CUDA_MEMORY_CACHING=1 compute-sanitizer --tool memcheck --error-exitcode 9 --report-api-errors no --kernel-regex kns=_kernel \
	    $(BIN)/python -m pytest -q -m gpu tests/test_gpu.py -k "($(SAMPLE)) and not race"

soundness: $(READY)	# every generator of tests for soundness, for ten minutes
	@$(BIN)/python -m tests.soundness --jobs 2

mutants: $(READY)	# one check of the compilers removed at a time: some generator must notice
	@$(BIN)/python -m tests.soundness.mutants --jobs 2

# every generator, sweep and storm with seeds of its own; SEED=number repeats a run
SECONDS ?= 3600
nightly: $(READY)
	@$(BIN)/python tests/nightly.py --seconds $(SECONDS) $(if $(SEED),--seed $(SEED))

fuzz: $(READY)		# random programs, plain against compiled (10 minutes on 2 cores)
	@$(BIN)/python -m tests.fuzz.run_programs --count 10000 --jobs 2

transparency: $(READY)	# CPython's own tests, with and without the hook
	@$(BIN)/python tests/transparency.py

test-without-compiler: $(READY)	# the chapters with the compiler hidden (20 minutes on 2 cores)
	@$(BIN)/python tests/chapters_without_compiler.py

test-pythons:
	@python3 tests/run_pythons.py

bench: $(READY)
	@$(BIN)/python -m benchmarks --suite smoke

ops: $(READY)		# every op PyTorch tests itself with, compiled, against eager (3 minutes on 2 cores)
	@$(BIN)/python tests/sweeps/ops.py

fuzz-graphs: $(READY)	# 5,000 random graphs: C++ against the interpreter of the loop IR against eager (5 minutes on 2 cores); 1,000 in Triton's
	@$(BIN)/python tests/sweeps/graphs.py
	@$(BIN)/python tests/sweeps/graphs.py --triton --count 1000

vision: $(READY)	# vision models at several image sizes, beside torch.compile: compilations, CPU seconds (2 minutes on 1 core)
	@$(BIN)/python -m benchmarks --suite programs --only ^vision/

storms: $(READY)	# 23 programs with numbers that change in each call: at most 3 compilations each; 22 of many breaks, objects and counters: none after the fifth call (2 minutes on 1 core)
	@$(BIN)/python -m benchmarks.programs.storms
	@$(BIN)/python -m benchmarks.programs.settling

fuzz-symbolic: $(READY)	# 1,000 random programs over symbolic sizes, compiled once each, run at 20 sizes (5 minutes on 1 core)
	@$(BIN)/python tests/sweeps/symbolic.py

fuzz-shapes: $(READY)	# 1,000 random programs that compute with sizes, captured with dynamic=True, run at 20 sizes (10 minutes on 1 core)
	@$(BIN)/python tests/sweeps/shapes.py

sanitize: $(READY)	# generated kernels under the address and undefined-behaviour sanitizers
	@$(BIN)/python tests/sweeps/sanitize.py

sizes:	# lines and tokens of every file, beside the budgets; the tables of README.md and docs/files.md
	@python3 tools/sizes.py --write

faults: $(READY)	# each call of the operating system fails in turn, then at random under 8 processes (an hour on 2 cores)
	@$(BIN)/python tests/faults.py
	@$(BIN)/python tests/faults.py --processes 8

soak: $(READY)	# one process for half an hour: random programs, threads, forks, evictions; flat memory
	@$(BIN)/python tests/soak.py

setup: $(READY)

$(READY): pyproject.toml setup.py minidynamo/frame/frame_hook.c minidynamo/frame/switched.h minidynamo/guards/layouts.c miniinductor/codegen/triton/launcher.c tools/setup_environment.py
	@sh tools/find_python.sh "$(PYTHON)" tools/setup_environment.py "$(VENV)" "$(TORCH)"
	@touch $(READY)

docs: $(READY)	# the API page from the docstrings, the figures from their JSON
	@$(BIN)/python tools/documentation.py

clean:
	rm -rf $(VENV) build *.egg-info course notebooks/solutions minidynamo/frame/*.so minidynamo/guards/*.so miniinductor/codegen/triton/*.so
