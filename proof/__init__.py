"""Evidence for Postroad's promises: real clusters, faults, recorded histories and their checkers.

Each part is a package of this folder with `run(options) -> Report`; `make proof` runs all of them
and writes one page of docs/proof for each. Nothing here is part of the product.
"""
