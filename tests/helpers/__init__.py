"""What several tests use: tiny models, copies of data sets, indexes, reports, slow references, and where things lie."""
