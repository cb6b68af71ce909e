"""A module for each family of outputs; `nodecheck.imports.kinds` lists them."""
