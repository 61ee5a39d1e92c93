def collect(c, o):
    pass
