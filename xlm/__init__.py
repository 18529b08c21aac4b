"""xlm: raw multilingual text in, a pretrained cross-lingual encoder with honest scores out."""

import os

__version__ = "0.1.0"
# torch reads it when it is loaded. Its warnings are of connections that end with their rank, with a page of addresses each.
os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
