"""nodecheck: is the GPU node in front of me the node I pay for?"""

__version__ = "0.1.0"
