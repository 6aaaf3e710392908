"""The command `flanders watch`: shows a results file while it is written, in the browser or in the terminal."""
