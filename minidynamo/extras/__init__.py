"""What a graph that raises costs, and the state of the thread in which frames are traced."""
