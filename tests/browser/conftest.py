import sys
from pathlib import Path

# The driver of a browser, and the server that tests/tracking starts as well.
sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1] / "tracking")]
