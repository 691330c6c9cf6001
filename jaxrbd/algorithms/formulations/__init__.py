"""Other formulations of algorithms, which no other module uses: the factor of the mass matrix."""
