"""Why some numbers are not as good as the paper's, found by experiment. The report prints these as footnotes.

A key is an experiment ("bnn"), a cell ("waveform/ksivi"), or a number of a cell: "bnn/wine-released-paper-ksivi/nll",
"waveform/step-sizes-ksivi/0.005/20000", "student-t/ksivi-riesz/boxed_5". It may hold * for any text. Of several keys
that fit, the first counts. The last section of the report lists what is not as good and has no remark.
"""

REMARKS: dict[str, str] = {}
