import sys
from pathlib import Path

# A server, a proxy and a loop that several test files share.
sys.path.insert(0, str(Path(__file__).parent))
