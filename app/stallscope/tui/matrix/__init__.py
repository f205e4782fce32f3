"""The matrix screen: a check run, opened, saved and compared, with its view model and widgets."""
