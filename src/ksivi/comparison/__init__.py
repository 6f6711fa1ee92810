"""Methods side by side on one problem: the table of their settings, and the distances of their
draws to the truth."""

from ._beside import HARD_PROBLEMS as HARD_PROBLEMS
from ._beside import SETTINGS as SETTINGS
from ._beside import Answer as Answer
from ._beside import Confrontation as Confrontation
from ._beside import confront as confront
from ._compare import MethodResult as MethodResult
from ._compare import Truth, compare, know_truth
from ._compare import redraw as redraw
from ._compare import sliced_distances as sliced_distances
from ._demo import DEMO_PROBLEMS as DEMO_PROBLEMS
from ._demo import Demonstration as Demonstration
from ._demo import demonstrate as demonstrate
from ._plans import ESTIMATORS as ESTIMATORS
from ._plans import SamplingPlan as SamplingPlan
from ._plans import TrainedMethod as TrainedMethod
from ._plans import TrainingPlan as TrainingPlan
from ._robust import RobustPlan as RobustPlan
from ._table import METHODS
from ._table import PRESETS as PRESETS
from ._table import plan_for as plan_for
from ._table import training_plan as training_plan

__all__ = ["METHODS", "Truth", "compare", "know_truth"]
