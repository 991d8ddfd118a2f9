"""Runs in an environment of its own, with stock openpi-client: asks twice, and prints what came as JSON.

stock_openpi.py URL API_KEY OBSERVATION.npz
"""

import json
import sys

import numpy as np
from openpi_client import action_chunk_broker, websocket_client_policy

url, api_key, path = sys.argv[1:]
client = websocket_client_policy.WebsocketClientPolicy(url, api_key=api_key or None)
observation = {
    key: (str(value) if value.dtype.kind == "U" else value) for key, value in np.load(path).items()
}
answers = [client.infer(observation)["actions"].tolist() for _ in range(2)]
try:
    client.infer({"prompt": "nothing else"})
    error = ""
except RuntimeError as refused:
    error = str(refused)
horizon = len(answers[0])
broker = action_chunk_broker.ActionChunkBroker(policy=client, action_horizon=horizon)
rows = [broker.infer(observation)["actions"].tolist() for _ in range(horizon)]
said = {"metadata": client.get_server_metadata(), "answers": answers, "error": error, "rows": rows}
sys.stdout.write(json.dumps(said))
