"""The text of the page of all methods."""

from ..methods import SEEDS
from .method_numbers import FAR

SMOKE = "**A smoke run: a fraction of the work, on few problems. Its numbers mean nothing.**"

ABOUT = (
    "Thirteen ways to train a semi-implicit family, on the same problems, with the same networks, "
    "and measured in the same way. Settings are those of `ksivi compare --preset paper`: the KSIVI "
    "paper's, with what methods published since then have of their own, such as AISIVI's number "
    "of steps. The networks choose their learning rate. This page and its figure are made from the "
    "records, one JSON file per cell. The same records give the same files, byte for byte.",
    f"**How to read the tables.** Numbers are means ± one standard deviation over {SEEDS} runs with "
    "different seeds, which train as one batch. †: some of the runs diverged; they were stopped, "
    "and measured at their last good parameters. A number in square brackets points to a remark "
    "at the end. “–”: the cell has not run, or nobody has published this number. *Truth against "
    "itself* is the floor: the same measure between two samples of exact draws or of NUTS draws. "
    "Sliced W₂ is a mean over ten redraws of 1,000 draws, with 500 projections.",
)

TOY_WORDS = (
    "KL(q‖p) is estimated from the tenth nearest neighbours among 100,000 draws of each; for the "
    "truth itself it is close to 0, of either sign. The Student-t has infinite variance: its W₂ "
    "is that of a few outliers, so KL(q‖p) says more there. The eight Gaussians are a ring of "
    "radius 4, with modes of width ½. Every method is annealed on the multimodal, the "
    "Student-t and the eight Gaussians."
)

PUBLISHED = (
    "A study of 2026, not yet reviewed, has W₂ of the methods below; AISIVI diverged on its banana. "
    "We do not know which W₂ it is, so compare ranks and not numbers. AISIVI's own paper has "
    "KL(p‖q), the other direction: 0.0853 on the banana, 0.0044 on the multimodal and 0.0072 on "
    "the X-shape."
)

LIKELIHOOD = (
    "The log likelihood of the truth under a method: the log density of 1,000 reference draws, "
    "estimated from 60,000 draws of the method with a Gaussian kernel whose covariance is "
    "n^(−2/(d+4)) times that of the draws (Scott's rule), as a mean for each reference draw. Higher "
    "is better; the floor is that of other reference draws, of which there are 9,000. The kernel "
    "is nearly as wide as the posterior when d is large, so draws that are somewhat too narrow "
    "can score above the floor. KL(q‖p) is estimated from 5,000 draws of each."
)

NETWORKS = (
    "Test scores of 100 draws on the released split, with the released code's posterior and "
    "minibatches: the RMSE of their mean prediction, and the NLL of their mixture. Each method "
    "chooses its learning rate on development rows, and KSIVI in all forms also the weight of log "
    "p. In brackets, the RMSE of the study of 2026. We cannot compute a floor for test scores. "
    "Networks of KSIVI, its u-statistic, SIVI and SIVI-SM are those of [the paper's "
    "page](paper.md)."
)

FAILED = (
    f"A run failed if it diverged, if its number is not finite, or if its sliced W₂ is above {FAR} "
    "times the floor of the problem. Networks have no floor: there, a run failed if it diverged "
    "or its RMSE is not finite."
)

SECONDS = (
    "The wall-clock time of a batch of runs on the device, divided by the number of runs; "
    "compilation counts in full. So this is what one run costs within its batch. For networks it "
    "includes the choice of settings, which all runs of a batch share, and compilation is divided "
    "too. Methods differ in their number of steps. Cells that shared the device were slower for "
    "it."
)
