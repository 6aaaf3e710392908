"""The paper's evaluation: every table and figure as a spec, the published values, and ours beside them."""
