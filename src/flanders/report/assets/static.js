// The page of a file: everything is in it.
begin();
