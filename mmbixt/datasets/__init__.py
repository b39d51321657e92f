"""Are the data sets of a config there, and are they whole?"""
