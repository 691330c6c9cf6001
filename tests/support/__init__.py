"""What the tests share: robots, states, oracles, and scripts for processes of their own."""
