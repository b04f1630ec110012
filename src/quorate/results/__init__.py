"""What a run gives to people: draws by name, a summary, densities, pictures and ArviZ's form.

Nothing here knows engines, journals or pages. Reports and live pages take their words from here.
"""
