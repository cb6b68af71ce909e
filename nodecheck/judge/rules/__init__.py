"""Every rule, a module a subject. Importing this package registers them all, in the order of the report."""
