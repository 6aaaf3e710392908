"""Views of a results file: tables in the terminal, one HTML page that opens offline, figures for papers."""

from flanders.report.figures import write_figures
from flanders.report.html import write_html

__all__ = ["write_figures", "write_html"]
