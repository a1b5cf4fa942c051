"""Of what is no package: pages, deployment, and rules of the repository."""
