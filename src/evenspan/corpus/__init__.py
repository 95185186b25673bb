"""Documents out of files, folders, standard input and hub datasets: streamed, with the place of every row."""
