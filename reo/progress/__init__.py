"""How far a copy is: `reo status`, `reo lag`, `reo inspect`, from the clusters alone."""
