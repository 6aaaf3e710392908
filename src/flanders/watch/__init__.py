"""Watching results while they are written: a page for the browser, and a log for the terminal."""
