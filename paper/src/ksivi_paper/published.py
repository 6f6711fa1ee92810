"""The numbers of the paper, from its tables and text, and of papers on other methods."""

MALA_SGLD_KL = 0.0289

STEP_SIZES = {
    ("sivi-sm", 10_000): (2.5415, 24.2952, 0.1203, 0.6107, 0.9906),
    ("sivi-sm", 20_000): (5.6184, 28.6335, 0.0938, 0.3283, 0.9145),
    ("ksivi", 10_000): (1.5196, 0.6863, 0.1509, 0.1064, 0.6059),
    ("ksivi", 20_000): (1.2600, 0.1120, 0.0965, 0.2628, 0.3186),
}
"""Sliced Wasserstein distance on waveform, at the learning rates 1e-5, 1e-4, 1e-3, 5e-3 and
8e-3."""

DIFFUSION = {
    "sivi": (0.1266, 0.0981, 0.0756),
    "sivi-sm": (0.0917, 0.0640, 0.0628),
    "uivi": (0.0314, 0.0426, 0.0582),
    "ksivi-u": (0.0134, 0.0182, 0.0551),
    "ksivi": (0.0140, 0.0115, 0.0493),
}
"""Sliced Wasserstein distance on the conditioned diffusion, d = 50, 100, 200."""

DIFFUSION_SECONDS = {
    "sivi": (58.00, 88.12, 113.46),
    "sivi-sm": (70.42, 128.13, 149.61),
    "ksivi-u": (39.09, 58.13, 64.17),
    "ksivi": (56.67, 90.48, 107.84),
}
"""Seconds for 10,000 steps on a 3.2 GHz CPU, d = 50, 100, 200."""

STUDENT_T = {
    "mied": (0.0366, 0.0778, 0.1396),
    "ksdd": (0.1974, 0.3187, 0.3910),
    "ksivi-gaussian": (0.1048, 0.1976, 0.2546),
    "ksivi-riesz": (0.0451, 0.0816, 0.1136),
}
STUDENT_T_SD = {
    "mied": (0.01, 0.03, 0.04),
    "ksdd": (0.04, 0.10, 0.11),
    "ksivi-gaussian": (0.03, 0.08, 0.09),
    "ksivi-riesz": (0.01, 0.04, 0.05),
}
"""Transport cost within half-widths 5, 8, 10: means and sds of ten runs."""

BNN_RMSE = {
    "boston": {"sivi": 2.621, "sivi-sm": 2.785, "sgld": 2.857, "ksivi": 2.555},
    "concrete": {"sivi": 6.932, "sivi-sm": 5.973, "sgld": 6.861, "ksivi": 5.750},
    "power": {"sivi": 3.861, "sivi-sm": 4.009, "sgld": 3.916, "ksivi": 3.868},
    "wine": {"sivi": 0.597, "sivi-sm": 0.605, "sgld": 0.597, "ksivi": 0.595},
    "yacht": {"sivi": 1.505, "sivi-sm": 0.884, "sgld": 2.152, "ksivi": 1.237},
    "protein": {"sivi": 4.669, "sivi-sm": 5.087, "sgld": 4.777, "ksivi": 5.027},
}
BNN_NLL = {
    "boston": {"sivi": 2.481, "sivi-sm": 2.542, "sgld": 3.094, "ksivi": 2.506},
    "concrete": {"sivi": 3.337, "sivi-sm": 3.229, "sgld": 4.036, "ksivi": 3.309},
    "power": {"sivi": 2.791, "sivi-sm": 2.822, "sgld": 2.944, "ksivi": 2.797},
    "wine": {"sivi": 0.904, "sivi-sm": 0.916, "sgld": 0.904, "ksivi": 0.901},
    "yacht": {"sivi": 1.721, "sivi-sm": 1.432, "sgld": 2.873, "ksivi": 1.752},
    "protein": {"sivi": 2.967, "sivi-sm": 3.047, "sgld": 2.984, "ksivi": 3.034},
}
"""Test scores: means of ten runs. The paper's column for the u-statistic repeats that for SGLD."""

KPG_LOG_LIKELIHOOD = {
    "ksivi": 74_504,
    "kpg": 74_311,
    "kpg-is": 74_528,
    "amortized-svgd": 70_371,
    "pvi": 47_853,
}
"""Conditioned diffusion, d = 100: log likelihood of 1,000 reference draws, from 60,000 draws of a
method (KPG's paper, arXiv 2506.05088)."""

STUDY_LOG_LIKELIHOOD = {
    "ksivi": 70.501,
    "sivi": 58.129,
    "uivi": 22.179,
    "denoised-score": 75.128,
    "aisivi": 74.740,
}
STUDY_SGLD = 75.161
"""The same for each draw, from 100,000 draws (a study of 2026, not reviewed)."""

STUDY_TOYS = {
    "banana": {"ksivi": 0.678, "uivi": 0.386, "denoised-score": 0.085, "aisivi": 37.0},
    "multimodal": {"ksivi": 0.078, "uivi": 0.118, "denoised-score": 0.045, "aisivi": 0.037},
    "x-shaped": {"ksivi": 0.786, "uivi": 0.152, "denoised-score": 0.074, "aisivi": 0.191},
}
"""W₂ of the same study; which W₂, and at how many draws, is not known here."""

AISIVI_KL = {"banana": 0.0853, "multimodal": 0.0044, "x-shaped": 0.0072}
"""KL(p‖q), of AISIVI in its own paper."""

STUDY_RMSE = {
    "boston": {"ksivi": 2.661, "sivi": 2.826, "denoised-score": 2.677, "aisivi": 3.294},
    "concrete": {"ksivi": 6.351, "sivi": 6.932, "denoised-score": 6.342, "aisivi": 8.243},
    "power": {"ksivi": 4.265, "sivi": 3.936, "denoised-score": 3.878, "aisivi": 4.007},
    "protein": {"ksivi": 4.967, "sivi": 4.892, "denoised-score": 4.493, "aisivi": 4.934},
    "wine": {"ksivi": 0.604, "sivi": 0.623, "denoised-score": 0.613, "aisivi": 0.625},
    "yacht": {"ksivi": 1.274, "sivi": 1.911, "denoised-score": 1.358, "aisivi": 2.539},
}
"""Test RMSE of the networks, of the same study."""
