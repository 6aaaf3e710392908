"""Shows a results file: as tables in the terminal, as an HTML page that works offline, or as figures for papers."""

from flanders.report.figures import write_figures
from flanders.report.html import write_html

__all__ = ["write_figures", "write_html"]
