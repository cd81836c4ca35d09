"""A worker that pays under permits: python3 paid_worker.py http://127.0.0.1:7070 http://127.0.0.1:7171/v1 (server, provider)"""

import json
import sys
import threading
from urllib import error, parse, request

SERVER, PROVIDER = sys.argv[1:3]
MODEL = "gpt-4.1-mini"
UPSTREAM = f"openai/{MODEL}"


def post(url, body):
    """Status, headers and JSON of an answer, also of one that is an error."""
    ask = request.Request(url, json.dumps(body).encode(), {"Content-Type": "application/json"}, method="POST")
    try:
        answer = request.urlopen(ask, timeout=90)
    except error.HTTPError as refused:
        answer = refused
    headers = {name.lower(): value for name, value in answer.headers.items()}
    return answer.status, headers, json.loads(answer.read() or b"null")


def beat(lease, ended):
    while not ended.wait(10):
        post(f"{SERVER}/work/heartbeat", {"worker": "python", "leases": [lease]})


def run(job, lease):
    path, token = f"{SERVER}/work/jobs/{job['job_id']}", {"lease_token": lease["lease_token"]}
    # Leave to pay first: closures, rates, concurrency and budgets of all workers together are asked here.
    ask = {**lease, "step": "answer", "estimated_tokens": 500}
    status, _, permit = post(f"{SERVER}/upstreams/{parse.quote(UPSTREAM, safe='')}/permits", ask)
    if status == 429 and "retry_after_seconds" in permit:
        # With its code first, `coolant jobs explain` says why. It uses up no attempt.
        reason = f"{permit['code']}: {permit['detail']}"
        return post(f"{path}/defer", {**token, "seconds": permit["retry_after_seconds"], "reason": reason})
    if status != 200:
        return post(f"{path}/fail", {**token, "error": {"code": permit["code"], "message": permit["detail"]}})

    status, headers, body = post(f"{PROVIDER}/chat/completions", {"model": MODEL, "messages": job["payload"]["messages"]})
    http = {"upstream": UPSTREAM, "status": status, "headers": headers, "body": body}
    settle = f"{SERVER}/permits/{permit['permit_id']}/settle"
    if status != 200:
        # As it came: Coolant reads what it means, closes the upstream if need be, and decides about the job.
        post(settle, {"outcome": "error", "http": http})
        return post(f"{path}/fail", {**token, "error": {"message": "the provider refused", "http": http}})
    post(settle, {"outcome": "ok", "http": http, "usage": {"model": body["model"], "reported": body["usage"]}})
    return post(f"{path}/succeed", {**token, "result": body["choices"][0]["message"]["content"]})


while True:
    wanted = {"worker": "python", "job_types": ["ASK"], "wait_seconds": 20}
    for claim in post(f"{SERVER}/work/claim", wanted)[2]["jobs"]:
        lease = {"job_id": claim["job"]["job_id"], "lease_token": claim["lease_token"]}
        ended = threading.Event()
        threading.Thread(target=beat, args=(lease, ended), daemon=True).start()
        run(claim["job"], lease)
        ended.set()
