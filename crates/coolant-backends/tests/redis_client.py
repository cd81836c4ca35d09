"""A program that uses Redis locks by itself, with redis-py: it is told what to do, a line each, and answers with a line."""

import sys

import redis

client = redis.Redis.from_url(sys.argv[1])
for line in sys.stdin:
    what, key = line.split()
    if what == "set":
        print(client.set(key, "1", nx=True, ex=300), flush=True)
    elif what == "delete":
        print(client.delete(key), flush=True)
    elif what == "get":
        print((client.get(key) or b"None").decode(), flush=True)
    elif what == "forever":
        print(client.set(key, "1", nx=True), flush=True)
    elif what == "lock":  # redis-py's own Lock, which uses the same convention with a random token
        lock = client.lock(key, timeout=300, blocking=False)
        print(lock.acquire(), flush=True)
    elif what == "unlock":
        lock.release()
        print("released", flush=True)
    else:
        sys.exit(f"what is {what}?")
