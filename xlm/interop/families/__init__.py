"""The families that weights can come from and go to, in the order in which export tries them."""

from __future__ import annotations

from collections.abc import Mapping

from xlm.errors import UserError, suggest
from xlm.interop.families import albert, bert, distilbert, electra, megatron_bert, modernbert, xlm
from xlm.interop.families.roberta import ROBERTA, XLM_ROBERTA
from xlm.interop.family import Family

_ORDER = (
    XLM_ROBERTA,
    bert.FAMILY,
    megatron_bert.FAMILY,
    modernbert.FAMILY,
    electra.FAMILY,
    albert.FAMILY,
    xlm.FAMILY,
    ROBERTA,
    distilbert.FAMILY,
)
FAMILIES: Mapping[str, Family] = {family.name: family for family in _ORDER}


def family_named(name: str) -> Family:
    """Return a family by its ``model_type``; raises UserError, with the nearest name, for one without a map."""
    if name not in FAMILIES:
        raise UserError(f"there is no weight map for the family '{name}'{suggest(name, FAMILIES)}; allowed: {', '.join(FAMILIES)}.")
    return FAMILIES[name]
