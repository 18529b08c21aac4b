"""What people look at: the joined scores, figures, and one page that needs nothing beside it."""
