"""Code that commands share: options, output, failures, progress, plans and clients."""
