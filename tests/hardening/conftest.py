from __future__ import annotations

from peers import flower

flower("serverapp.strategy")  # its own imports raise deprecation warnings
