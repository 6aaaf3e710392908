"""What a results file looks like: one HTML page that opens offline, and figures for papers."""

from flanders.report.figures import write_figures
from flanders.report.html import write_html

__all__ = ["write_figures", "write_html"]
