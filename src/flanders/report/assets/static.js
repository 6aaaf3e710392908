// Starts the page that is a file. All its data are in the file.
begin();
