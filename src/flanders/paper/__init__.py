"""The paper's evaluation: every table and figure as a spec, what was published, and ours beside it."""

from flanders.paper.tables import VARIANTS, Cell, TableSpec, read_tables, table_names
from flanders.paper.variants import Variant, read_variant

__all__ = ["VARIANTS", "Cell", "TableSpec", "Variant", "read_tables", "read_variant", "table_names"]
