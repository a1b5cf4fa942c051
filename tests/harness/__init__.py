"""What the tests share and what is no test: brokers, services, proxies, databases, stand-ins, the
judge. `bench` and `faults` use it too.
"""
