"""Rows as the definitions say, one sequence and one piece at a time: slow, plain, and written without the code under test."""

from dataclasses import dataclass, field

from tests.shards.stored import item_of, row_of
from xlm.seeding import key_int64

BOS, EOS = 2, 3
WORD = 1 << 64


@dataclass
class Sequence:
    ids: list = field(default_factory=list)
    positions: list = field(default_factory=list)
    types: list = field(default_factory=list)
    languages: list = field(default_factory=list)
    sources: list = field(default_factory=list)  # (item, start, end)
    label: int = -1
    key: str | None = None

    def add(self, ids, language, token_type=0, restart=False):
        first = 0 if restart or not self.ids else self.positions[-1] + 1
        self.ids += ids
        self.positions += range(first, first + len(ids))
        self.types += [token_type] * len(ids)
        self.languages += [language] * len(ids)
        return self


def scramble(value):
    """SplitMix64 (Steele, Lea & Flood 2014), in whole numbers."""
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) % WORD
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) % WORD
    return value ^ (value >> 31)


def coin(plan, leaf, layout, length, epoch, row, number):
    """Toss number ``number`` of a row: the top bit of word ``number`` of stream 2."""
    base = key_int64("row", plan.recipe.seed, leaf.corpus, leaf.objective, layout, length, epoch)
    gamma = 0x9E3779B97F4A7C15
    seed = scramble((base + gamma * (row + 1)) % WORD)
    return scramble((seed + gamma * ((2 << 32) + number + 1)) % WORD) >> 63


def reference_row(plan, shards, leaf_number, variant, epoch, row):
    """Return the sequences of one row, before anything is masked."""
    leaf = plan.leaves[leaf_number]
    objective, corpus = leaf.objective, leaf.corpus
    phase = plan.recipe.phases[0]
    options, layout, length = phase.objectives[objective], plan.layout(0, leaf_number), phase.sequence_length
    segments = row_of(shards, corpus, layout, length, variant, row)
    languages = [plan.languages.index(language) for language in leaf.languages]

    def text(segment):
        (ids,) = item_of(shards, corpus, segment.item)[1]
        return ids[segment.start : segment.end].tolist()

    def toss(number):
        return coin(plan, leaf, layout, length, epoch, row, number)

    if objective in ("tlm", "contrastive"):
        found = []
        for number, segment in enumerate(segments):
            source, target = (side.tolist() for side in item_of(shards, corpus, segment.item)[1])
            here = (segment.item, 0, len(source)), (segment.item, len(source), len(source) + len(target))
            halves = [(source, languages[0], here[0]), (target, languages[1], here[1])]
            if objective == "contrastive":
                for ids, language, origin in halves:
                    key = item_of(shards, corpus, segment.item)[0]
                    found.append(Sequence(sources=[origin], key=key).add([BOS, *ids, EOS], language))
                continue
            if toss(number):
                halves.reverse()
            (first, of_first, origin), (second, of_second, other) = halves
            one = Sequence(sources=[origin, other])
            if options.form == "xlm":
                one.add([EOS, *first, EOS], of_first).add([EOS, *second, EOS], of_second, restart=True)
            else:
                one.add([BOS, *first, EOS], of_first).add([*second, EOS], of_second, token_type=int(options.form == "bert"))
            found.append(one)
        return found
    (language,) = languages
    if objective in ("nsp", "sop"):
        found = []
        for number, (a, b) in enumerate(zip(segments[0::2], segments[1::2], strict=True)):
            follows = a.item == b.item and a.end == b.start
            if objective == "nsp":
                label = int(not follows)
            else:
                assert follows
                label = toss(number)
                if label:
                    a, b = b, a
            one = Sequence(sources=[tuple(a), tuple(b)], label=label)
            found.append(one.add([BOS, *text(a), EOS], language).add([*text(b), EOS], language, token_type=1))
        return found
    if options.rows == "full_sentences":
        one = Sequence(sources=[tuple(segment) for segment in segments]).add([BOS], language)
        for segment in segments:
            one.add([*text(segment), EOS], language)
        return [one]
    return [Sequence(sources=[tuple(segment)]).add([BOS, *text(segment), EOS], language) for segment in segments]
