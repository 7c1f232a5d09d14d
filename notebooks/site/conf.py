"""Sphinx settings of the course's site: stored outputs only, nothing from the network."""

project = "minidynamo"
author = "the minidynamo authors"
extensions = ["myst_nb"]
nb_execution_mode = "off"
nb_merge_streams = True
myst_enable_extensions = ["deflist"]
myst_heading_anchors = 3
exclude_patterns = []
html_theme = "sphinx_book_theme"
html_title = "A real torch.compile, small enough to read"
html_static_path = ["static"]
html_css_files = ["course.css"]
html_js_files = [("course.js", {"defer": "defer"})]
html_theme_options = {
    "use_download_button": False,
    "use_fullscreen_button": False,
    "secondary_sidebar_items": ["page-toc"],
    "show_toc_level": 2,
    "pygments_light_style": "a11y-high-contrast-light",
    "pygments_dark_style": "a11y-high-contrast-dark",
    "home_page_in_toc": True,
}
html_context = {"default_mode": "auto"}
html_show_copyright = False
html_show_sphinx = False
html_copy_source = False
html_use_index = False
suppress_warnings = ["mystnb.unknown_mime_type", "config.cache"]
