"""The pages, one module or folder each. `index` names them."""
