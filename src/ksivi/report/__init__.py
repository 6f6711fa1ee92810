"""Figures and pages."""

from ._answers import AnswerPanel as AnswerPanel
from ._answers import PosteriorColumn as PosteriorColumn
from ._answers import answers_and_truth as answers_and_truth
from ._comparison import methods_and_truth
from ._comparison_page import comparison_page
from ._errors import witness_arrows
from ._figures import contours as contours
from ._figures import draws_and_contours
from ._figures import dress as dress
from ._figures import frame as frame
from ._figures import mass_levels as mass_levels
from ._figures import new_figure as new_figure
from ._html import note as note
from ._html import page as page
from ._ranks import rank_histograms as rank_histograms
from ._run_page import growing_curve as growing_curve
from ._run_page import run_page
from ._style import FAINT as FAINT
from ._style import WIDTH as WIDTH
from ._style import panels as panels
from ._style import save as save

__all__ = [
    "comparison_page",
    "draws_and_contours",
    "methods_and_truth",
    "run_page",
    "witness_arrows",
]
