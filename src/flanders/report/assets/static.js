// Starts the page of a report, which is one file with all its data.
begin();
