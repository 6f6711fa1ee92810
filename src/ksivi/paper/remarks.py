"""Why some numbers are not as good as the paper's, found by experiment. The report prints these as footnotes.

A key is an experiment ("bnn"), a cell ("waveform/ksivi"), or a number of a cell: "bnn/wine-released-paper-ksivi/nll",
"waveform/step-sizes-ksivi/0.005/20000", "student-t/ksivi-riesz/boxed_5". It may hold * for any text. Of several keys
that fit, the first counts. The last section of the report lists what is not as good and has no remark.
"""

_WAVEFORM = (
    "Single runs wander: looks at ten runs between 16,000 and 20,000 steps range from 0.103 to 0.173, and the paper's "
    "is one number. It is not the noise of the last steps: with the rate falling to 0 along a cosine, three runs end "
    "at 0.136, 0.143 and 0.137. Nor is it the truth, since chains of SGLD, the paper's, are at the floor. More steps "
    "close half of the gap (the row of 40,000)."
)

REMARKS: dict[str, str] = {
    "waveform/ksivi": _WAVEFORM,
    "waveform/step-sizes-ksivi/0.001/20000": _WAVEFORM,
    "waveform/step-sizes-ksivi/0.005/10000": (
        "At this rate the distance does not settle: five more runs, looked at every 1,000 steps, have means between "
        "0.131 (2,000 steps) and 0.298 (12,000), and single looks between 0.098 and 0.585. Before 8,000 steps some are "
        "below the paper's number, at 10,000 none: 0.19 to 0.32."
    ),
}
