import sys
from pathlib import Path

# The driver of a browser, the server that tests/tracking starts as well, and the training of tests/integration with its warm start.
sys.path[:0] = [str(Path(__file__).parent), *(str(Path(__file__).parents[1] / room) for room in ("", "tracking", "integration"))]
