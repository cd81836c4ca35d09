"""A worker in plain Python: python3 worker.py http://127.0.0.1:7070 SHOUT 30 (server, job type, lease)"""

import json
import sys
import threading
import time
from urllib import error, request

SERVER, JOB_TYPE, LEASE = sys.argv[1], sys.argv[2], float(sys.argv[3])


def call(method, path, **body):
    ask = request.Request(SERVER + path, json.dumps(body).encode(), {"Content-Type": "application/json"}, method=method)
    while True:
        try:
            return json.load(request.urlopen(ask, timeout=90))
        except OSError as fault:  # any call may be repeated, so an outage is waited out
            if getattr(fault, "code", 503) < 500:
                raise
            time.sleep(1)


def beat(lease, ended):
    while not ended.wait(LEASE / 3):
        call("POST", "/work/heartbeat", worker="python", leases=[lease])


def run(job, token, steps, path):
    for n, text in enumerate(job["payload"]["texts"]):
        if f"text-{n}" not in steps:  # else an earlier attempt has paid for it
            time.sleep(len(text) / 10)  # with the next line it stands for the paid call
            steps[f"text-{n}"] = text.upper()
            call("PUT", f"{path}/steps/text-{n}", lease_token=token, output=text.upper())
    call("POST", f"{path}/succeed", lease_token=token, result=steps)


while True:
    wanted = {"worker": "python", "job_types": [JOB_TYPE], "lease_seconds": LEASE, "wait_seconds": 20}
    for claim in call("POST", "/work/claim", **wanted)["jobs"]:
        job, token, ended = claim["job"], claim["lease_token"], threading.Event()
        path, lease = f"/work/jobs/{job['job_id']}", {"job_id": job["job_id"], "lease_token": token}
        threading.Thread(target=beat, args=(lease, ended), daemon=True).start()
        try:
            run(job, token, claim["steps"], path)
        except error.HTTPError as refused:  # 409: the lease is lost, and the job is somebody else's
            print(refused.read().decode(), file=sys.stderr)
        except Exception as fault:
            call("POST", f"{path}/fail", lease_token=token, error={"code": "BROKE", "message": repr(fault)})
        ended.set()
