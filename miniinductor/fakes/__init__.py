"""What torch's shape functions get wrong, put right: both packages trace under these corrections.

`strides.py`: the strides of results.
"""
