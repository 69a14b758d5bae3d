"""Which file is this, and how is it laid out?"""
